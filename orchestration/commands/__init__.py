"""The commands of `multilink`: the options of each, one call, its table. A file is a command, a group, or a topic.

The function `NAME_command` is the command: its parameters are the options (`options.py` has those that several
commands share), its docstring is the help. It yields its summary, lines for a person and values for a machine; the tree
(`orchestration/cli.py`) adds `--json` and prints it. A command may go on after that: to serve, or to raise.

What a command calls is a plain function of `pipelines`, `training` or another folder here, which programs call as well.
It is imported inside of the function, so that help and a mistake do not wait for libraries that they do not need.
"""
