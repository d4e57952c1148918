"""Regimes: worlds that change within an episode, which no policy is shown.

A regime is a span of epochs in which the world of an env stays as it is: it has a view of the
images, and its own classes if `regime.classes` is set.  A new one begins with a probability per
epoch.  What a host needs changes with it.

- `regime_spec`: `RegimeSpec`, the setting group `regime.*`; the views and their weights
- `regime_process`: `RegimeProcess`, the instance process: when regimes begin, and what each shows
- `image_view`: `View`, how images are shown; `image_views`: a batch as each env sees it
- `regime_tasks`: `digits_regimes`, and the defaults of its runs

Plugs in at the entry points `morphogen.settings` and `morphogen.tasks`.  The setting group names
the instance process, whose `show` is the view of the feed and of the validation.  The core keeps
the number and the view of a regime as leaves of `Instance`, and derives the event `RegimeBegan`
from them.

Importing the package loads no torch, nor do `regime_spec` and `regime_tasks`; the other modules do.
"""
