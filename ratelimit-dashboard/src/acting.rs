//! One operator's action: where it takes effect, and what it writes.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, RequestExt,
    body::Bytes,
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use ratelimit_runtime::{
    Override, Overrides,
    overrides::{OverrideError, OverrideSource, Place},
};
use serde::de::DeserializeOwned;

use crate::{
    ActionError, Dashboard,
    access::{TARGET, Viewer},
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
        let invalid = |why: serde_json::Error| ActionError::bad_request(why.to_string());
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
                return Err(ActionError::conflict(why));
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

    /// Reads the override of a place where the action takes effect.
    pub(super) async fn read(&self, place: Place) -> Result<Option<Override>, OverrideError> {
        match self.scope {
            Scope::Process => Ok(self.overrides.here().get(place)),
            // Another process may have written since the latest poll.
            Scope::Fleet => self.overrides.fleet().get(place).await,
        }
    }

    /// Writes the override of a place, or removes it, and logs the action. In the fleet it takes
    /// the place of that of this process.
    pub(super) async fn write(
        &self,
        place: Place,
        what: Option<Override>,
        action: &str,
    ) -> Result<(), OverrideError> {
        let (here, fleet) = (self.overrides.here(), self.overrides.fleet());
        let (mut changes, last) = (self.overrides.changed(), self.last_change());
        let (policy, source) = (&*place.limit, self.source());
        match (self.scope, what.clone()) {
            (Scope::Process, Some(what)) => here.set(place.clone(), what)?,
            (Scope::Process, None) => here.remove(place.clone()),
            (Scope::Fleet, Some(what)) => fleet.set(place.clone(), what).await?,
            (Scope::Fleet, None) => fleet.remove(place.clone()).await?,
        }
        if self.scope == Scope::Fleet && here.get(place.clone()).is_some() {
            // No call is decided by neither.
            let arrival = async {
                while !self.has_arrived(policy, what.as_ref(), last)
                    && changes.changed().await.is_ok()
                {}
            };
            if what.is_some() {
                let _ = tokio::time::timeout(ARRIVAL, arrival).await;
            }
            here.remove(place.clone());
        }
        tracing::info!(
            target: TARGET, policy, action, %source, "an operator acted on a rate limit"
        );
        Ok(())
    }

    /// Returns the number of the last change in this process.
    fn last_change(&self) -> u64 {
        self.overrides.history().first().map_or(0, |change| change.number)
    }

    /// Returns `true` if the fleet's override of a limit or of a caller has become this one since a
    /// change.
    fn has_arrived(&self, limit: &str, what: Option<&Override>, since: u64) -> bool {
        let unsigned = |what: Option<&Override>| {
            let mut what = what.cloned()?;
            what.by = None;
            what.windows.iter_mut().for_each(|window| window.by = None);
            Some(what)
        };
        self.overrides.history().iter().take_while(|change| change.number > since).any(|change| {
            change.source == OverrideSource::Redis
                && change.limit == limit
                && unsigned(change.after.as_ref()) == unsigned(what)
        })
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
