//! A host behind a slow link, such as a satellite: its bytes are held for a time each way.

use crate::machines::Machines;
use crate::rig::proxy::Proxy;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A connection begins with a message of the server, and a question and its answer: three times this.
const EACH_WAY: Duration = Duration::from_millis(600);

#[test]
fn a_host_behind_a_slow_link_connects_and_its_members_get_mail() {
    let Some(mut machines) = Machines::or_skip(&["ann", "far"]) else { return };
    let (hub, server) = (machines.network.hub().clone(), machines.server.address());
    let listener = hub.enter(|| TcpListener::bind((hub.address(), 0)).unwrap());
    let proxy = Proxy::between(listener, move || hub.enter(|| TcpStream::connect(server)));
    proxy.set_delay(EACH_WAY);
    let far = machines.get_mut("far");
    far.kill_relay();
    far.use_servers(vec![format!("nats://{}", proxy.address())]);
    far.start_relay();
    let mut carol = machines.get("far").start_member("carol");
    machines.wait_known("carol", true);
    machines.get("ann").team_ok(&["send", "carol", "from afar"]);
    machines.eventually("it arrives", || machines.get("far").has_mail("carol", "from afar"));
    carol.kill().unwrap();
    carol.wait().unwrap();
    machines.wait_known("carol", false);
}
