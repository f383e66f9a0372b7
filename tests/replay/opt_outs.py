"""Hosts that show the recorded pictures, and say in a file of theirs that these may not be used for training.

Standard library only.
"""

from replies import Reply, Request, json_reply, text_reply

RESERVED, UNTRAINED = "reserved.example", "untrained.example"
OPTED_OUT = (RESERVED, UNTRAINED)


def origin_file(request: Request) -> Reply:
    """A host's ai.txt or tdmrep.json; those of most hosts are not there."""
    if (request.host, request.path) == (RESERVED, "/.well-known/tdmrep.json"):
        rule = {"location": "/", "tdm-reservation": 1, "tdm-policy": f"http://{RESERVED}/policy.json"}
        return json_reply(200, [rule])
    if (request.host, request.path) == (UNTRAINED, "/ai.txt"):
        return text_reply(200, "User-Agent: *\nDisallow: /\n")
    return text_reply(404, "not found\n")
