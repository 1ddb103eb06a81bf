//! The cost of requests: the size of the prompts, and the part of a long turn that a provider's cache can hold.

use super::fake::{Fake, Reply, RequestView};
use super::fake_models::{agent_of, call, connect, headless};
use super::harness::Team;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The tenths of a byte of a prompt for each token. Tokenizers of today's models find one token in 4.4 to 4.6 bytes of it.
const TENTHS_OF_TOKEN: usize = 44;

/// The name of the teammate of a long run.
const TEAMMATE: &str = "alice";

/// The number of blocks before a breakpoint in which the Messages API looks for an earlier one.
const LOOK_BACK: usize = 20;

/// Returns the size of the system prompt and the tools of a request in tokens, estimated from its bytes.
pub(crate) fn prompt_tokens(team: &Team, view: &RequestView) -> usize {
    // The length of the workspace's path is not that of the prompt.
    let system = view.system().replace(&*team.workspace().to_string_lossy(), "");
    let bytes = system.len() + view.body["tools"].to_string().len();
    (bytes * 10).div_ceil(TENTHS_OF_TOKEN)
}

/// The requests of a lead and of its teammate, with a turn of many calls of each.
pub(crate) struct LongTurns {
    pub(crate) team: Team,
    pub(crate) lead: Vec<RequestView>,
    pub(crate) teammate: Vec<RequestView>,
}

impl LongTurns {
    /// Runs a lead and a teammate, each of which calls the model so many times in one turn, with commands of 150 lines.
    pub(crate) fn of_calls(calls: usize) -> Self {
        let team = Team::new();
        let fake = Fake::start(move |view| {
            let (turn, is_lead) = (view.turn(), agent_of(view) == "lead");
            if turn + 1 >= calls {
                return Reply::text("done");
            }
            if is_lead && turn == 0 {
                let order = json!({"name": TEAMMATE, "role": "coder", "prompt": "begin"});
                return call(view, "spawn_teammate", &order);
            }
            let command = format!("seq {turn} {}", turn + 150);
            call(view, "bash", &json!({ "command": command }))
        });
        connect(&team, &fake);
        team.variable("TEAM_MAX_ROUNDS", "1000");
        headless(&team, "begin", &[]).expect(0);
        let of = |name: &str| {
            let all = fake.requests().into_iter();
            // The lead has a further turn, for the result of the teammate.
            all.filter(|view| agent_of(view) == name).take(calls).collect::<Vec<_>>()
        };
        let (lead, teammate) = (of("lead"), of(TEAMMATE));
        assert_eq!((lead.len(), teammate.len()), (calls, calls));
        Self { team, lead, teammate }
    }
}

/// A block of a request, without its breakpoint, and whether it has one.
struct CacheBlock {
    text: String,
    is_breakpoint: bool,
}

/// Returns the blocks of a request in the order in which the Messages API caches them.
fn blocks(body: &Value) -> Vec<CacheBlock> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let system = body["system"].as_array().into_iter().flatten();
    let messages = body["messages"].as_array().into_iter().flatten();
    let of_messages =
        messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let all = tools.chain(system).chain(of_messages);
    all.map(|block| {
        let mut block = block.clone();
        let mark = block.as_object_mut().unwrap().remove("cache_control");
        CacheBlock { text: block.to_string(), is_breakpoint: mark.is_some() }
    })
    .collect()
}

/// A cache of prefixes, as that of the Messages API: a request writes the prefix of each of its breakpoints, and reads the
/// longest one that ends at a breakpoint or in the blocks before it.
#[derive(Default)]
struct PrefixCache(BTreeSet<String>);

impl PrefixCache {
    /// Returns the bytes that a request reads from the cache, and all of its bytes.
    fn take(&mut self, body: &Value) -> (usize, usize) {
        let blocks = blocks(body);
        let mut prefix = String::new();
        let prefixes: Vec<String> = blocks
            .iter()
            .map(|block| {
                prefix.push_str(&block.text);
                prefix.clone()
            })
            .collect();
        let breakpoints = || (0..blocks.len()).filter(|at| blocks[*at].is_breakpoint);
        assert!(breakpoints().count() <= 4, "the API permits four breakpoints");
        let reach = breakpoints().flat_map(|at| at.saturating_sub(LOOK_BACK)..=at);
        let read = reach.filter(|at| self.0.contains(&prefixes[*at])).map(|at| prefixes[at].len());
        let read = read.max().unwrap_or_default();
        self.0.extend(breakpoints().map(|at| prefixes[at].clone()));
        (read, prefix.len())
    }
}

/// Returns the bytes of these requests that come from the cache of the Messages API, and all of their bytes.
pub(crate) fn cached_bytes(requests: &[RequestView]) -> (usize, usize) {
    let mut cache = PrefixCache::default();
    let sizes = requests.iter().map(|view| cache.take(&view.body));
    sizes.fold((0, 0), |(read, all), (hit, size)| (read + hit, all + size))
}
