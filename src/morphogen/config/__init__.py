"""Configuration of a run: `RunSpec`, presets, tasks, schedules, and their files.  Loads no torch.

For everybody who starts a run, adds a setting, or asks which values a setting takes.

- `spec`: `RunSpec`, the whole configuration; `resolve` fills every field that the task or the reward rule decides.
- `groups`, `instance_spec`, `legacy_rewards`, `telemetry_spec`, `whitebox_spec`: the nested specs, one per subject.
- `fields`: field types with their ranges, checked whenever a spec is constructed.
- `task`: `TASKS`, the table of data, host network, default slots and sizes.
- `preset`: `PRESETS`, named partial configs in the form of a config file.
- `config_files`: `parse_config`, `dump_config`, and `merge_layers` with `build_spec` for partial settings.
- `action_schedule`: declared actions per epoch, built in or from a JSON file.

Layers, the last one wins: field defaults, preset, config file, `--set` and flags.  `merge_layers` puts the settings of
the named preset beneath all others.  Fields that are None after that come from the task, by `resolve`; a value that is
set always wins, and resolving twice changes nothing.  The `config.json` of a run is resolved, so that later changes of
presets or tasks do not reach it.

Constructing a `RunSpec` applies no preset: its field `preset` only records a name.

Faults are collected and raised together as one `ConfigError`, a line each.  May import `vocab` and `errors` only.
"""
