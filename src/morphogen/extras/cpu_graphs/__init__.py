"""Graphs of a CPU: the operators of a pass, called again on the same memory.

A pass of small networks spends most of its time between its operators: in Python, in autograd, in
the allocator.  A recorded pass is a list of compiled operators and kernels with their arguments;
replaying it allocates nothing and derives nothing, and has the same bits.

    recorder    `CpuGraphs`, which records a pass and returns its replay

    import torch
    from morphogen.extras.cpu_graphs.recorder import CpuGraphs

    total, step = torch.zeros(3), torch.ones(3)
    record = CpuGraphs().record
    replay = record(lambda: {"total": total + step}, {"total": total})  # runs the pass once
    replay()
    assert total.tolist() == [2.0, 2.0, 2.0]

All results of a pass share one memory, which is planned when the pass was recorded: a result that
no later operator reads makes room for others.

Plugs in at: the group of entry points `morphogen.graphs`, whose names are types of devices and
whose values make graphs as `env.capture` says.  Without it a CPU runs every pass as it is.  Loads
torch.
"""
