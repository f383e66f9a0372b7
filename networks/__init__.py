"""Image networks that no package brings, in torch alone: both halves use them, and they import neither."""
