//! Bots and workers, whose handlers answer no HTTP request.

use ratelimit_runtime::{RateLimitError, rate_limit};

use crate::REFUSED;

mod telegram {
    use std::ops::ControlFlow;

    use teloxide::{dispatching::UpdateHandler, prelude::*};

    use super::{REFUSED, rate_limit};

    type Failure = Box<dyn std::error::Error + Send + Sync>;

    #[rate_limit(period = 30, threshold = 1, key = message.chat.id.0)]
    async fn hello(message: Message) -> Result<(), Failure> {
        let _ = message;
        Ok(())
    }

    fn message_in(chat: i64) -> Update {
        let chat = format!(r#"{{"id": {chat}, "type": "private", "first_name": "Alice"}}"#);
        let message = format!(r#"{{"message_id": 1, "date": 1, "chat": {chat}, "text": "hello"}}"#);
        serde_json::from_str(&format!(r#"{{"update_id": 1, "message": {message}}}"#)).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_the_handler() {
        let handler: UpdateHandler<Failure> = Update::filter_message().endpoint(hello);
        let tell = async |chat| match handler.dispatch(dptree::deps![message_in(chat)]).await {
            ControlFlow::Break(answer) => answer,
            ControlFlow::Continue(_) => panic!("not handled"),
        };
        assert!(tell(1).await.is_ok());
        assert!(tell(1).await.unwrap_err().to_string().contains(REFUSED));
        assert!(tell(2).await.is_ok());
    }
}

mod jobs {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use apalis::prelude::*;
    use tokio::sync::mpsc;

    use super::{REFUSED, RateLimitError, rate_limit};

    #[rate_limit(period = 30, threshold = 1, key = &user)]
    async fn send(user: String, sent: Data<Arc<AtomicU32>>) -> Result<(), RateLimitError> {
        sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_the_job() {
        let mut storage = MemoryStorage::new();
        for user in ["alice", "alice", "bob"] {
            storage.push(user.to_owned()).await.unwrap();
        }
        let sent = Arc::new(AtomicU32::new(0));
        let (ended, mut ends) = mpsc::unbounded_channel();
        let worker = WorkerBuilder::new("mail")
            .backend(storage)
            .data(Arc::clone(&sent))
            .on_event(move |_, event| match event {
                Event::Success(_) => ended.send(None).unwrap(),
                Event::Error(error) => ended.send(Some(error.to_string())).unwrap(),
                _ => {}
            })
            .build(send);
        let worker = tokio::spawn(worker.run());
        let mut errors = Vec::new();
        for _ in 0..3 {
            errors.extend(ends.recv().await.unwrap());
        }
        worker.abort();
        assert!(errors.len() == 1 && errors[0].contains(REFUSED), "{errors:?}");
        assert_eq!(sent.load(Ordering::Relaxed), 2);
    }
}
