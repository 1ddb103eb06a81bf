"""A server that answers requests and records their sizes."""

import stats


class Server:
    def __init__(self):
        stats.reset()

    def answer(self, path):
        body = path.strip("/").upper()
        stats.record(path, len(body))
        return body

    def summary(self):
        return [(name, stats.count(name), stats.mean(name)) for name in stats.names()]
