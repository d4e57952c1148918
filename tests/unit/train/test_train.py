"""Runs from Python: a spec, and settings beside it."""

import morphogen as mg


def test_settings_beside_a_spec_override_it():
    spec = mg.RunSpec(preset="tiny", rounds=3, envs=8, final_episodes=0, policy_name="wait")
    result = mg.train_ppo_vectorized(spec, rounds=1, ppo={"epochs": 1})
    assert len(result.history) == 1
    assert result.arm.name == "wait"
    assert repr(result).startswith("TrainResult(1 rounds, value ")
