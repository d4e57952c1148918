"""Loggers of scalars: tables of CSV, TensorBoard, Weights & Biases and MLflow.

For readers who want curves of a run in a tool of their own: the log of a run is complete without
any logger.

    scalars       numbers of an event -> rows of tables; `ScalarSink`, the base of all loggers
    csv_tables    a file per table, `metrics/csv/round.csv`
    services      TensorBoard, Weights & Biases and MLflow, through the loggers of TorchRL
    wandb_spec    the settings `telemetry.wandb`

Tables are `round`, `ppo`, `actions`, ... with the round, from 1, as step; `epoch`, means over the
envs, with the epochs of the run counted from 0; and `anomaly`.  A service names a number
`table/column`.

    morphogen train --logger csv tensorboard

A logger is late at most, and is left out once it fails.  In a resumed run tables of CSV continue
without a gap; a service gets the repeated rounds under the same steps, and its own run continues.

Plugs in at: the groups of entry points `morphogen.loggers` and `morphogen.settings`.  `csv_tables`
loads no torch; a service loads its package and torch when its first row is written.
"""
