"""What every `imgtool` reads of its own package, read before it forks: tables, templates. Nothing of a project.

`tests.forked_imgtool` has its server load this module last; nobody else imports it.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - urllib3 has it loaded with the first request
import gc

import jinja2.sandbox  # noqa: F401 - recipe.jinja imports it late

from training_imgtool.base import resources
from training_imgtool.jobs import yamlio
from training_imgtool.jobs.rules import shapes
from training_imgtool.model.recipe import jinja, printing
from training_imgtool.model.recipe.printing import BASE_TEMPLATE

yamlio.read_table("machines/vertex.yaml")
shapes._shape("CustomJob")
environment = jinja._environment(str(resources.directory("templates")), (BASE_TEMPLATE,), None, printing.LONGEST)
environment.get_template(BASE_TEMPLATE)
gc.freeze()  # the garbage collector of a fork passes over all of this, and so copies no page of it
