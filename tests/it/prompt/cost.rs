//! The cost of a request: the size of the prompts, and the part of a long turn that comes from the provider's cache.

use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::{connect, connect_openai};
use crate::support::harness::Team;
use crate::support::prompt_cost::{LongTurns, cached_bytes, prompt_tokens};

/// The largest size of system prompt and tools of a full lead, and of a teammate, in tokens.
const LEAD_TOKENS: usize = 3_500;
const TEAMMATE_TOKENS: usize = 2_500;

/// The number of model calls of a long turn.
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
        let tokens = prompt_tokens(&team, view);
        println!("{model}: {} tools, {tokens} tokens", tools.len());
        assert!(tokens <= LEAD_TOKENS, "{model}: {tokens} tokens");
    }
}

#[test]
fn the_prompts_of_a_long_turn_stay_small_and_it_is_read_from_the_cache() {
    let turns = LongTurns::of_calls(CALLS);
    for (name, requests, most) in
        [("lead", &turns.lead, LEAD_TOKENS), ("teammate", &turns.teammate, TEAMMATE_TOKENS)]
    {
        for view in [requests.first(), requests.last()] {
            let tokens = prompt_tokens(&turns.team, view.unwrap());
            println!("{name}: {tokens} tokens");
            assert!(tokens <= most, "{name}: {tokens} tokens");
        }
        let (read, all) = cached_bytes(requests);
        println!("{name}: {read} of {all} bytes of {CALLS} requests come from the cache");
        assert!(read * 100 > all * 90, "{name}: only {read} of {all} bytes");
    }
}
