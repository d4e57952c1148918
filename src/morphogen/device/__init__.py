"""Crossings between host and device, clocks and memory: the packages below never leave the device.

Answers "what waits for the GPU?".  Entry points:

    transfers      `FENCES`, the table of all crossings with direction, frequency and reason;
                   `Transfers` executes and counts them
    profiler       `PHASES` of a round; `open_timer`, which measures them where a package offers a
                   timer
    determinism    settings of torch for a CUDA device that repeats its results
    graphs         loops of operators, recorded and replayed: CUDA graphs
    cuda_memory    peaks of the CUDA allocator, name of the device
    malloc         memory retention of the process on a CPU
    host_reads     operators in which a check recognises an undeclared read

A crossing is one buffer: leaves are packed by a `BufferLayout` into a `StagingBuffer`, copied once,
and unpacked as numpy arrays.  `plan` is the only crossing of an epoch for which the host waits;
`record` is read one epoch later.

May know CUDA streams and events.  May not know envs, policies or files.
Loads torch, except `malloc`.
"""
