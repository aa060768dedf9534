//! One operator's action: where it takes effect, and what it writes.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, RequestExt,
    body::Bytes,
    extract::{FromRequest, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use ratelimit_runtime::{Caller, Override, OverrideError, OverrideSource, Overrides};
use serde::de::DeserializeOwned;

use crate::{
    ActionError, Dashboard,
    access::Viewer,
    scope::{Scope, target},
};

/// The time after which the fleet's override has reached this process, or Redis has failed.
const ARRIVAL: Duration = Duration::from_secs(5);

/// A request for an action: its sender, and its body in JSON.
pub(super) struct Action<T> {
    pub(super) dashboard: Arc<Dashboard>,
    pub(super) viewer: Viewer,
    pub(super) body: T,
}

impl<T: DeserializeOwned> FromRequest<Arc<Dashboard>> for Action<T> {
    type Rejection = Response;

    async fn from_request(
        mut request: Request,
        dashboard: &Arc<Dashboard>,
    ) -> Result<Self, Response> {
        let viewer = request.extract_parts::<Extension<Viewer>>().await;
        let Extension(viewer) = viewer.map_err(IntoResponse::into_response)?;
        let text = Bytes::from_request(request, dashboard).await;
        let parsed = serde_json::from_slice(&text.map_err(IntoResponse::into_response)?);
        let invalid =
            |why: serde_json::Error| ActionError::new(StatusCode::BAD_REQUEST, why.to_string());
        let body = parsed.map_err(|why| invalid(why).into_response())?;
        Ok(Self { dashboard: Arc::clone(dashboard), viewer, body })
    }
}

/// An action of an operator.
pub(super) struct Acting {
    pub(super) overrides: Overrides,
    scope: Scope,
}

impl Dashboard {
    /// Returns the action of a viewer. Without a scope it is the fleet, if Redis can be used.
    pub(super) fn act_as(
        &self,
        viewer: &Viewer,
        scope: Option<Scope>,
    ) -> Result<Acting, ActionError> {
        let overrides = self.limiter.overrides().by(viewer.name.as_deref().unwrap_or_default());
        let scope = match scope {
            Some(Scope::Fleet) if !overrides.follows_redis() => {
                let why = "this process follows no overrides on Redis; choose this process";
                return Err(ActionError::new(StatusCode::CONFLICT, why));
            }
            Some(Scope::Process) => {
                viewer.means_this_process()?;
                Scope::Process
            }
            Some(scope) => scope,
            None if target(&overrides) == OverrideSource::Redis => Scope::Fleet,
            None => Scope::Process,
        };
        Ok(Acting { overrides, scope })
    }
}

impl Acting {
    /// Returns the source that the action changes.
    pub(super) fn source(&self) -> OverrideSource {
        match self.scope {
            Scope::Process => OverrideSource::Operator,
            Scope::Fleet => OverrideSource::Redis,
        }
    }

    /// Reads the override of a limit, of all limits under the name `*`, or of a caller of the fleet.
    pub(super) async fn read(
        &self,
        limit: &str,
        caller: Option<&Caller>,
    ) -> Result<Option<Override>, OverrideError> {
        // Another process may have published since the latest poll.
        match (self.scope, caller) {
            (Scope::Fleet, None) => return self.overrides.published(limit).await,
            (Scope::Fleet, Some(caller)) => {
                return self.overrides.published_for(limit, caller).await;
            }
            (Scope::Process, _) => {}
        }
        if let Some(caller) = caller {
            let listed = self.overrides.list_for(limit).into_iter();
            let mut own = listed.filter(|it| it.source == OverrideSource::Operator);
            return Ok(own.find(|it| it.caller == *caller).map(|it| it.what));
        }
        let own = |(source, what)| (source == OverrideSource::Operator).then_some(what);
        Ok(self.overrides.by_source(limit).into_iter().find_map(own))
    }

    /// Writes the override of a limit or of a caller, or removes it. In the fleet it takes the place of that of
    /// this process.
    pub(super) async fn write(
        &self,
        limit: &str,
        caller: Option<&Caller>,
        what: Option<Override>,
    ) -> Result<(), OverrideError> {
        let overrides = &self.overrides;
        if self.scope == Scope::Process {
            return match (caller, what) {
                (Some(caller), Some(what)) => overrides.set_for(limit, caller, what),
                (None, Some(what)) => overrides.set(limit, what),
                (caller, None) => {
                    self.end_here(limit, caller);
                    Ok(())
                }
            };
        }
        let (mut changes, last) = (overrides.changed(), self.last_change());
        match (caller, &what) {
            (Some(caller), Some(what)) => overrides.publish_for(limit, caller, what).await?,
            (Some(caller), None) => overrides.unpublish_for(limit, caller).await?,
            (None, Some(what)) => overrides.publish(limit, what).await?,
            (None, None) => overrides.unpublish(limit).await?,
        }
        if self.has_own(limit, caller) {
            // No call is decided by neither.
            let arrival = async {
                while !self.has_arrived(limit, what.as_ref(), last)
                    && changes.changed().await.is_ok()
                {}
            };
            if what.is_some() {
                let _ = tokio::time::timeout(ARRIVAL, arrival).await;
            }
            self.end_here(limit, caller);
        }
        Ok(())
    }

    /// Returns the number of the last change in this process.
    fn last_change(&self) -> u64 {
        self.overrides.history().first().map_or(0, |change| change.number)
    }

    /// Returns `true` if the fleet's override of a limit or of a caller has become this one since a change.
    fn has_arrived(&self, limit: &str, what: Option<&Override>, since: u64) -> bool {
        let unsigned = |what: Option<&Override>| {
            let mut what = what.cloned()?;
            what.by = None;
            Some(what)
        };
        self.overrides.history().iter().take_while(|change| change.number > since).any(|change| {
            change.source == OverrideSource::Redis
                && change.limit == limit
                && unsigned(change.after.as_ref()) == unsigned(what)
        })
    }

    fn has_own(&self, limit: &str, caller: Option<&Caller>) -> bool {
        let is_own = |source| source == OverrideSource::Operator;
        match caller {
            // Listed callers may be digests, which differ from the caller.
            Some(_) => self.overrides.list_for(limit).iter().any(|it| is_own(it.source)),
            None => self.overrides.source(limit).is_some_and(is_own),
        }
    }

    fn end_here(&self, limit: &str, caller: Option<&Caller>) {
        match caller {
            Some(caller) => self.overrides.remove_for(limit, caller),
            None => self.overrides.remove(limit),
        }
    }

    /// Returns the name of the scope in a sentence.
    pub(super) fn scope_name(&self) -> &'static str {
        match self.scope {
            Scope::Process => "this process",
            Scope::Fleet => "the fleet",
        }
    }

    /// Returns the place where the action is in effect, in words.
    pub(super) fn place(&self) -> String {
        match (self.scope, self.overrides.redis_failure()) {
            (Scope::Fleet, _) => {
                "written to Redis; in effect in the whole fleet within a second".to_owned()
            }
            (Scope::Process, Some(reason)) => {
                format!("in effect in this process alone; Redis cannot be used: {reason}")
            }
            (Scope::Process, None) => "in effect in this process".to_owned(),
        }
    }
}
