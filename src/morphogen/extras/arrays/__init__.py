"""Arrays: data sets of users, from arrays and from `torch.utils.data.Dataset`.

For readers who ask "how do I train on samples of my own?".  Entry points:

    array_data    `from_arrays`, `from_torch`: a data set of samples in memory, split by a fixed key
    conversion    arrays, tensors and lists of any library as the inputs and labels of samples; what
                  cannot be one is refused with its field, its sample and a remedy

Plugs in at the registry `DATASETS`: a data set is registered by name, or given in the place of one
to `TaskSpec`, `RunSpec` and `make`.  Both constructors are public: `mg.from_arrays` and
`mg.from_torch`.

Example: `mg.make("digits", dataset=mg.from_arrays("mine", images, labels))`.
Errors: samples of another form are a DataError, in one line.
The modules load torch; importing the package does not.
"""
