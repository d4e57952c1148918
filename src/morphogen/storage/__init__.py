"""Files of a run: atomic writes, guarded reads, the run directory, its lock and its checkpoints.

For the packages above (`data`, `telemetry`, `engine`, `analysis`, `run`, `cli`); knows nothing of what a run computes.

Without torch:
- `files`: `write_atomic` (a file is complete or absent), `json_bytes`, `sha256`; `read_bytes`, `read_lines`,
  `parse_json`, `error_line` read regular files only, with bounds on size and depth
- `run_directory`: names of all files of a run; `create_directory`, `open_directory`, `check_new_file`, `RunDirectory`;
  `hold_directory`: a directory by descriptor, which a move does not change; `own_directory`: one process per run
  directory, and the name of the process that has it; `refuse_links`, `refuse_outside`: directories of somebody else
- `locks`: `hold_lock`; flock where the file system has it, else a file that names its process
- `checkpoint_store`: `list_checkpoints`, `find_damage`, `apply_retention` (decides which checkpoints are deleted)
- `codec`: `pack`, `unpack`; dataclasses, named tuples and arrays as plain trees and back; `build_check`: does a plain
  value fit an annotated type (fields of events, of JSON results)?

With torch:
- `checkpoint_files`: `save_checkpoint`, `load_checkpoint`, `save_policy`, `load_policy`
- `tensor_trees`: `to_nested_dict`, `check_tree`, `restore_tree`; state as nested dicts of tensors and back;
  `save_tree`, `load_tree`; such trees in safetensors files, which hold no code and no unchecked sizes

A checkpoint is a directory with two safetensors files, one of all envs and one of `shared` state, and with a manifest
that has the sha256 of each file.
`run.snapshot` decides what goes into it, `run.checkpointer` decides when it is saved.

Imports `errors`, `vocab` and `config`.
Faults are a `CheckpointError`, `ConfigError` or `OSError` with one sentence.
Importing the package loads no torch.
"""
