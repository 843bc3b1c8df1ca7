"""The targets. Each module checks a spec, makes the spec's job file, and checks job files for `lint`."""
