"""Extras: subjects that the core does not know, a folder each.

For readers who look for a subject outside of the core, or who write a package with parts of their
own: an extra plugs in at the same hooks as every package.

    text             language models: hosts, blueprints, data sets, tasks
    arrays           data sets of users, from arrays and torch data sets
    cifar            data set and tasks of CIFAR-10
    whitebox         a task kind whose accuracy is a formula, so that the best policy is known
    regimes          worlds that change within an episode
    schedules        policies of declared actions: `germinate_one`, `full_cycle`, `schedule:FILE`
    search           searched schedules and thresholds: `tune`, oracle, clairvoyant, replays
    ranks            several processes that share the envs of a run
    alarms           limits on the numbers of a round, and signs of seeds
    scoreboard       outcomes of the seeds of each blueprint
    statistics       actions, masks, rewards and observations of a round
    inspection       facts and tables of a run: `inspect`, `mg.tables`
    former_logs      logs of earlier versions
    details          events about epochs that the core does not read
    watch            a live table of a run
    loggers          scalars of a run as tables, and for TensorBoard, Weights & Biases, MLflow
    archetypes       scripted policies, which rank reward rules: the command `rewards`
    legacy_rewards   the reward rules of the original system, with their settings
    torchrl          the environment for TorchRL, policies in both directions
    gymnasium        the environment for Gymnasium
    sb3              the environment for Stable-Baselines3

Parts are registered by the entry points of this distribution, in `pyproject.toml`:

    [project.entry-points."morphogen.tasks"]
    pydoc = "morphogen.extras.text.tasks:PYDOC"

An extra imports the core and no other extra, except `sb3`, which builds on `gymnasium`, `search`,
which builds on `schedules`, and `pictures`, which builds on `inspection`.  The core imports no
extra.  An extra can be deleted with its folder, its entry points and its tests; `python
tests/tools/without_extra.py NAME` shows that the other tests pass without it.  Importing this
package loads nothing, no torch either.
"""
