"""The targets. Each module checks a spec, makes its job file, and judges a file that someone else wrote."""
