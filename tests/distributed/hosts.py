"""Several hosts on one machine: network namespaces, each with an address and a file of names, on one switch whose ports can be taken down.

Needs the right to make namespaces: of root, or of users where the kernel lets them.
"""

import os
import subprocess

ASK = ["--user", "--map-root-user"] if os.geteuid() else []
ENTER = ["--user", "--preserve-credentials"] if os.geteuid() else []


class Hosts:
    """`count` hosts with the addresses 10.99.0.1 and on. `names` is a file that each has as /etc/hosts."""

    def __init__(self, count, names):
        self.names, self.idle, self.pids = names, [], []
        self.addresses = [f"10.99.0.{i + 1}" for i in range(count)]
        names.write_text("127.0.0.1 localhost\n")
        try:
            self.switch = self._space(["unshare", *ASK, "--net", "--mount"], "ip link add name switch type bridge && ip link set switch up")
            for i, address in enumerate(self.addresses):
                own = self._space([*self._enter(self.switch, "--mount"), "unshare", "--net", "--mount"], f"mount --bind {names} /etc/hosts")
                self._on(self.switch, f"ip link add port{i} type veth peer name eth0 netns {own} && ip link set port{i} master switch up")
                self.pids.append(own)
                self._on(own, f"ip link set lo up && ip address add {address}/24 dev eth0 && ip link set eth0 up")
        except BaseException:
            self.close()
            raise

    def _space(self, command, script):
        """The id of a process that does nothing in a namespace of its own, until this one ends."""
        idle = subprocess.Popen([*command, "sh", "-c", f"{script} && echo $$ && exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
        self.idle.append(idle)
        pid = idle.stdout.readline().strip()
        assert pid, f"no network namespace: {command}: {script}"
        return int(pid)

    @staticmethod
    def _enter(pid, *more):
        more = [*more, "--root"] if "--mount" in more else more  # else the root would be that of the machine, also within a chroot
        return ["nsenter", "--target", str(pid), *ENTER, "--net", *more]

    def _on(self, pid, script):
        subprocess.run([*self._enter(pid, "--mount"), "sh", "-c", script], check=True)

    def name(self, host, *names):
        """The host has these names from now on."""
        with open(self.names, "a") as file:
            file.write(f"{self.addresses[host]} {' '.join(names)}\n")

    def start(self, host, command, cwd, **options):
        """A process on a host, in this folder."""
        here = ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd)]
        return subprocess.Popen([*self._enter(self.pids[host], "--mount"), *here, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)

    def cut(self, host):
        """No packet comes to the host or from it any more, and nobody is told."""
        self._on(self.switch, f"ip link set port{host} down")

    def close(self):
        for idle in self.idle:
            idle.stdin.close()
            idle.wait()
            idle.stdout.close()
