"""The targets: one module each, which checks a spec, makes its job file and judges a file of others."""
