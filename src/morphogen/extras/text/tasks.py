"""Tasks of language models: data, host and defaults of their runs."""

from morphogen.config.task import read_tasks
from morphogen.extras.text.host import TransformerSpec

# pydoc: as in digits.  Half of the hosts see no token back, because then attention is worth its
# price.
TASKS = read_tasks(__file__, TransformerSpec)
