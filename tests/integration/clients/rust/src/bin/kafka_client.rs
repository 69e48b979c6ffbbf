//! kafka_client: create a topic, write to each partition with an idempotent producer, read it back.
//!
//!     kafka_client ADDRESS TOPIC PARTITIONS REPLICAS
//!
//! Prints a line of JSON a partition.  The crate sends no compressed batches; its consumer lists
//! the offsets that it starts from.
use bytes::Bytes;
use kafka_client::admin::NewTopic;
use kafka_client::{Client, ConsumerConfig, Header, Producer, ProducerConfig, ProducerRecord};
use serde_json::{json, Value};
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

const RECORDS: i64 = 10;
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, partitions, replicas] = words.as_slice() else {
        return Err("usage: kafka_client ADDRESS TOPIC PARTITIONS REPLICAS".into());
    };
    let partitions: i32 = partitions.parse()?;
    let client = Client::builder(address.split(',').map(String::from).collect())
        .build()
        .await?;
    let admin = client.admin();
    let created = admin
        .create_topic(&NewTopic::new(topic, partitions, replicas.parse()?))
        .await?;
    if !created.is_success() {
        return Err(format!("{topic} was not created: {created:?}").into());
    }
    let deadline = Instant::now() + TIMEOUT;
    while !admin.list_topics().await?.iter().any(|one| one.name == *topic) {
        if Instant::now() > deadline {
            return Err(format!("{topic} is not listed").into());
        }
        admin.refresh_metadata().await?;
    }
    let producer = client.producer(ProducerConfig::new().with_acks(-1)).await;
    for partition in 0..partitions {
        println!("{}", used(&client, &producer, topic, partition).await?);
    }
    producer.close().await?;
    Ok(())
}

async fn used(
    client: &Client,
    producer: &Producer,
    topic: &str,
    partition: i32,
) -> Result<Value, Error> {
    let mut produced = Vec::new();
    for n in 0..RECORDS {
        produced.push(producer.send(record(topic, partition, n)).await?.offset);
    }
    let mut consumer = client.consumer(ConsumerConfig::new().with_earliest());
    consumer.assign(topic, vec![partition]).await?;
    let deadline = Instant::now() + TIMEOUT;
    let mut records = Vec::new();
    while records.len() < produced.len() && Instant::now() < deadline {
        for one in consumer.poll_timeout(POLL).await? {
            records.push(json!([
                one.offset,
                one.key.map(text),
                text(one.value),
                one.timestamp,
                one.headers.into_iter().map(|h| (h.key, text(h.value))).collect::<Vec<_>>(),
            ]));
        }
    }
    consumer.close().await?;
    Ok(json!({"produced": produced, "records": records}))
}

fn record(topic: &str, partition: i32, n: i64) -> ProducerRecord {
    ProducerRecord::new(topic, Bytes::from(format!("none {n} ").repeat(20)))
        .with_key(Bytes::from(partition.to_string()))
        .with_partition(partition)
        .with_timestamp(1_700_000_000_000 + n)
        .with_headers(vec![Header { key: "h".to_owned(), value: Bytes::from("v") }])
}

fn text(data: impl AsRef<[u8]>) -> String {
    String::from_utf8(data.as_ref().to_vec()).unwrap()
}
