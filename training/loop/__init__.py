"""The training loop: context (who else trains), setup, step, validation, state, and the trainer that orders them."""
