"""`multilink demo`: the main job on the recorded web, and that web as a process."""
