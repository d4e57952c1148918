"""CIFAR-10: its files as a data set, nine tasks of the original system, and a preset.

For readers who train hosts on larger images than the packaged digits.

    files   reader of the official files, binary or Python; nothing is downloaded
    tasks   the tasks `cifar_*`, and the preset `cifar_baseline_stable`

Binary files may hold fewer records than the official ones, and are memory-mapped.  Python files are
pickles: only the official files are read, which their md5 tells, and the unpickler knows no name
but the names of an array of bytes.

The extra plugs in at the entry points `morphogen.tasks`, `morphogen.presets`, `morphogen.datasets`.
`morphogen data` shows the files that are expected, and the folder in which they are expected.

    morphogen train --task cifar_impaired --data-dir data

`tasks` loads no torch, `files` does.
"""
