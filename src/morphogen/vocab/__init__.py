"""Enums and tables that every other package shares.  Standard library only, no torch.

For readers who need the code, name or order of something, or a number that no run can change.

- `stage`: stages of a slot, transitions, gates and checks, alpha modes and curves, blend
  algorithms, faults.
- `action`: heads of an action, their values, and the heads that each op uses.
- `blueprint`: codes of blueprints, also of those from outside; parameter counts.
- `slot`: names and forms of slots.
- `limits`: what a run allows its policy to do.
- `observation`: features of the observation in their order, with units and validity flags.
- `reward`: components of the reward rules, names of detectors.
- `purpose`: one code per purpose of random draws, part of every random stream.
- `paths`: `expand_path`, the path of a text of the user.
- `text`: values in messages, short and safe for a terminal.

Codes and orders are stored in checkpoints and event files: append to an enum, never renumber it.
"""
