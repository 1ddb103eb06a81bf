"""An ssh server for the tests: it runs commands in the home folder that it is given, and lets reverse tunnels through."""

import asyncio
import os
import sys

import asyncssh

address, port, home, host_key, authorized = sys.argv[1:]


class Server(asyncssh.SSHServer):
    def server_requested(self, listen_host, listen_port):
        return True


async def run(process):
    environment = {**os.environ, "HOME": home}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(
        process.command, cwd=home, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
    )
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    process.exit(await child.wait())


async def serve():
    await asyncssh.listen(
        address,
        int(port),
        server_factory=Server,
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        process_factory=run,
        encoding=None,
    )
    print("listening", flush=True)
    await asyncio.Event().wait()


asyncio.run(serve())
