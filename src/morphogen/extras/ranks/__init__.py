"""Ranks: processes that share the envs of a run, with the results of one process.

Rank w of W owns the envs from w E / W to (w + 1) E / W.  Ranks exchange the rows of a round and
then update the policy alike (`engine.reduce` gather), or they exchange the gradient of every
minibatch (allreduce).

    rank_launcher  `RankLauncher`: starts the ranks of a command, or runs a command as a rank
    workers        the ranks that a command starts, as processes of torch's elastic launcher
    process_group  `join_ranks`, `ProcessGroup`: gloo on CPUs, nccl between CUDA devices
    rank_exchange  `RankExchange`, the table of all collectives and its ledger
    agreement      actions that succeed on all ranks, or raise one error on all of them
    shards         states of the envs of each rank, joined and divided
    job            variables that `torchrun` sets

Plugs in at two hooks: the entry point `morphogen.launchers` (`cli.launcher.Launcher`) starts
commands, and a run calls `ppo.Exchange`.  The settings are `engine.ranks`, `engine.rank_per_core`,
`engine.reduce` and `engine.collective_timeout_s`.
`rank_launcher` and `job` load no torch; all others do.
"""
