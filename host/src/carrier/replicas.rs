//! The number of servers that keep the stream and the bucket of a team: three of a cluster, else one.

use super::error::CarrierError;
use super::storage::Shared;
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::{ErrorCode, stream};

/// Three of a cluster go on after the loss of one. More would make each line wait for more of them.
const OF_A_CLUSTER: usize = 3;

impl Shared {
    /// The number of servers: those of the configuration, or those that the connected one names.
    fn known_servers(&self) -> usize {
        let info = self.connection.client().try_server_info();
        let told = info.map_or(0, |info| info.connect_urls.len());
        self.servers.max(told)
    }

    /// Whether there are several servers.
    pub(super) fn is_cluster(&self) -> bool {
        self.known_servers() > 1
    }

    /// The number of servers that should keep what is stored.
    fn wanted_replicas(&self) -> usize {
        if self.known_servers() >= OF_A_CLUSTER { OF_A_CLUSTER } else { 1 }
    }

    /// Returns a stream. It is made if it is missing, and kept by more servers if that was not possible before; by fewer
    /// it never is, so that hosts which know the cluster differently do not work against each other.
    pub(super) async fn kept_stream(
        &self,
        what: &'static str,
        config: stream::Config,
    ) -> Result<stream::Stream, CarrierError> {
        let replicas = self.wanted_replicas();
        let found = self.step(what, async {
            match self.context.get_stream(&config.name).await {
                Err(why) if is_missing(&why) => Ok(None),
                found => found.map(Some),
            }
        });
        match found.await? {
            Some(found) => {
                self.amend_stream(what, &found, replicas).await?;
                Ok(found)
            }
            None => self.make_stream(what, config, replicas).await,
        }
    }

    async fn make_stream(
        &self,
        what: &'static str,
        config: stream::Config,
        replicas: usize,
    ) -> Result<stream::Stream, CarrierError> {
        let of = |num_replicas| stream::Config { num_replicas, ..config.clone() };
        let made = self.step(what, async {
            match self.context.create_stream(of(replicas)).await {
                Err(why) if replicas > 1 && is_for_lack_of_servers(&why) => Ok(Err(why)),
                made => made.map(Ok),
            }
        });
        match made.await? {
            Ok(made) => Ok(made),
            Err(why) => {
                tell_too_few(&config.name, replicas, &why.to_string());
                self.step(what, self.context.create_stream(of(1))).await
            }
        }
    }

    /// Changes the settings of a stream that another version, or a host that knew of fewer servers, has made.
    async fn amend_stream(
        &self,
        what: &'static str,
        found: &stream::Stream,
        replicas: usize,
    ) -> Result<(), CarrierError> {
        let config = &found.cached_info().config;
        let strict = stream::Config { allow_rollup: false, ..config.clone() };
        if config.allow_rollup {
            // One message of any host would remove all values.
            self.step(what, self.context.update_stream(&strict)).await?;
        }
        if config.num_replicas < replicas {
            let more = stream::Config { num_replicas: replicas, ..strict };
            match self.step(what, self.context.update_stream(more)).await {
                Ok(_) => tracing::info!(
                    stream = config.name,
                    replicas,
                    "more servers keep a stream of the team"
                ),
                // It is of use with fewer, too.
                Err(why) => tell_too_few(&config.name, replicas, &why.to_string()),
            }
        }
        Ok(())
    }
}

fn is_missing(why: &GetStreamError) -> bool {
    let GetStreamErrorKind::JetStream(why) = why.kind() else { return false };
    why.error_code() == ErrorCode::STREAM_NOT_FOUND
}

/// Whether the cluster has too few servers at present.
fn is_for_lack_of_servers(why: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(why) = why.kind() else { return false };
    let code = why.error_code();
    code == ErrorCode::CLUSTER_NO_PEERS
        || code == ErrorCode::INSUFFICIENT_RESOURCES
        || code == ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED
}

fn tell_too_few(stream: &str, wanted: usize, why: &str) {
    tracing::warn!(stream, wanted, why, "too few servers of the cluster keep a stream of the team");
}
