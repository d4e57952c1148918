"""The plots of the report, in its order."""

from morphogen.run.plots import acting, arms, growing, learning, running, seeds, worth
from morphogen.run.plots.canvas import Plot

PLOTS: tuple[Plot, ...] = (
    learning.LEARNING,
    worth.COMPARISON,
    arms.ARMS,
    arms.PROFILES,
    worth.FRONTIER,
    growing.LIFECYCLE,
    seeds.CONTRIBUTIONS,
    seeds.BLUEPRINTS,
    acting.ACTIONS,
    acting.REWARDS,
    learning.PPO,
    worth.INSTANCES,
    running.HEALTH,
    running.THROUGHPUT,
)
