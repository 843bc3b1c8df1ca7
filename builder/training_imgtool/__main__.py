"""`python -m training_imgtool` is the command `imgtool`."""

from training_imgtool.cli.main import main

main()
