"""Does each algorithm learn? Five seeds in a small budget, and the same with a learning rate of 0."""
