"""Text and image towers: each from prepared rows to unit vectors of the joint space (`training.parts` finds them)."""
