"""Serves a GGUF file on a port of this machine by the package xllamacpp, as llama-server does: PORT FILE [TEMPLATE]."""

import sys
import threading

import xllamacpp

port, file, *template = sys.argv[1:]
params = xllamacpp.CommonParams()
params.hostnames = ["127.0.0.1"]
params.port = int(port)
params.model.path = file
params.model_alias = {file.rsplit("/", 1)[-1].removesuffix(".gguf")}
# Two members work at the same time, each with half of the context.
params.n_ctx, params.n_parallel = 16384, 2
params.use_jinja, params.ui = True, False
if template:
    with open(template[0], encoding="utf-8") as text:
        params.chat_template = text.read()
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
