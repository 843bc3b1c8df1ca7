"""imgtool: one spec becomes TensorFlow training images, one per role, and the job file that runs them.

`job` is the Python interface for programs that submit jobs; everything else is the command line.
"""

from training_imgtool.api import job
from training_imgtool.core.version import __version__

__all__ = ["__version__", "job"]
