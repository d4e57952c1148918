"""Targets: losses and scores of regression, of several labels per sample, and of users.

For readers who ask "how do I train on targets that are no class labels?".  Entry points:

    losses       the losses `mse`, `huber` and `bce_with_logits`, and the scores `explained` and
                 `label_accuracy`
    criteria     the loss and the score of a task, bound to its data: targets are checked and
                 converted, functions of users are tried, and the loss of guessing is measured

Plugs in at the registries `LOSSES` and `SCORES`, and at the entry points `morphogen.criteria`: the
criterion of every task but cross-entropy with accuracy.  A task names both, as in
`mg.TaskSpec(loss="mse", ...)`; a function (output, target) -> [B] serves as well.

A function is called once for the samples of all networks, so it must treat each sample by itself.
Errors: targets that do not fit the loss or the host are a DataError, functions with a result of
another form a ConfigError, in one line each.
The modules load torch; importing the package does not.
"""
