"""Fashion-MNIST: pictures of clothes, packaged at half size and complete, and two tasks.

For readers who train hosts on real images that come with the package.

    files         `read_fashion` reads the packaged copies, 14 x 14; `read_fashion_full` reads the
                  official files, 28 x 28; both check the bytes by their sha256
    tasks         the tasks `fashion` and `fashion_full`
    fashion.npz   8,000 training, 2,000 validation and 2,000 test images, each class equally often;
                  `python -m bench.data.fashion FOLDER` makes it of the official files
    schedule      the policy `fashion_schedule`, a rival of every run of `fashion`: the schedule in
                  `schedule.json`, which `morphogen tune` found on training instances
    LICENSE       of the images: MIT, Zalando SE

The official files are looked for in the folder of data files, then where the Debian package
`dataset-fashion-mnist` puts them.  Nothing is downloaded; `morphogen data fashion_full` names the
command that installs them.

The extra plugs in at the entry points `morphogen.tasks`, `morphogen.datasets` and
`morphogen.policies`.
`tasks` loads no torch, `files` does.
"""
