//! The cost of a request: the size of the prompt of a lead, and the part of a long turn that comes from the provider's cache.

use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::{call, connect, connect_openai, headless};
use crate::support::harness::Team;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The largest size of system prompt and tools of a full lead, in bytes. Tokenizers of today's models find one token in 4.4 to
/// 4.6 bytes of it, so that it is below 3,500 tokens.
const PROMPT_BYTES: usize = 15_400;

/// The number of blocks before a breakpoint in which the Messages API looks for an earlier one.
const LOOK_BACK: usize = 20;

/// The number of model calls of the long turn.
const CALLS: usize = 50;

#[test]
fn the_prompt_of_a_full_lead_is_small() {
    for model in ["anthropic/claude-x", "openai/gpt-5-fake"] {
        let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
        if model.starts_with("openai/") {
            connect_openai(&team, &fake);
        } else {
            connect(&team, &fake);
        }
        team.team(&["lead", "-p", "hi", "--timeout", "600", "--model", model]).expect(0);
        let view = &fake.requests()[0];
        let tools = view.body["tools"].as_array().unwrap();
        assert!(tools.len() > 20, "{model}: {} tools", tools.len());
        // The length of the workspace's path is not that of the prompt.
        let system = view.system().replace(&*team.workspace().to_string_lossy(), "");
        let bytes = system.len() + view.body["tools"].to_string().len();
        println!("{model}: {} tools, {bytes} bytes", tools.len());
        assert!(bytes <= PROMPT_BYTES, "{model}: {bytes} bytes");
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

#[test]
fn a_long_turn_is_read_from_the_cache() {
    let team = Team::new();
    let fake = Fake::start(|view| {
        let turn = view.turn();
        if turn >= CALLS {
            return Reply::text("done");
        }
        let command = format!("seq {turn} {}", turn + 150);
        call(view, "bash", &json!({ "command": command }))
    });
    connect(&team, &fake);
    team.variable("TEAM_MAX_ROUNDS", "100");
    headless(&team, "begin", &[]).expect(0);
    let mut cache = PrefixCache::default();
    let (mut read, mut all) = (0, 0);
    let requests = fake.requests();
    assert_eq!(requests.len(), CALLS + 1);
    for view in &requests {
        let (hit, size) = cache.take(&view.body);
        read += hit;
        all += size;
    }
    println!("{read} of {all} bytes of {} requests come from the cache", requests.len());
    assert!(read * 100 > all * 90, "only {read} of {all} bytes");
}
