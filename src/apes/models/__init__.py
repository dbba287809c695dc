"""What is trained: the model protocol, and logistic regression with its compiled loops."""
