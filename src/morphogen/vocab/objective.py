"""Objectives of tasks: the network whose value counts, and when; the usual loss and score."""

CROSS_ENTROPY = "cross_entropy"
ACCURACY = "accuracy"
DELIVERED = "delivered"
ANYTIME = "anytime"
OBJECTIVES: dict[str, str] = {  # objective -> name of the value of an episode
    DELIVERED: "network value",  # of the network that is delivered at the end
    # mean over the epochs, of the network in use and of all that is grown
    ANYTIME: "anytime value",
}
