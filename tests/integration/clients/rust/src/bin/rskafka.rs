//! rskafka: create a topic, write each partition in each codec, read it back, list its offsets.
//!
//!     rskafka ADDRESS TOPIC PARTITIONS REPLICAS
//!
//! Prints a line of JSON a partition.
use chrono::{TimeZone, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use serde_json::{json, Value};
use std::collections::BTreeMap;

type Error = Box<dyn std::error::Error>;

const RECORDS_PER_CODEC: i64 = 10;
const TIMEOUT_MS: i32 = 30_000;
const MAX_BYTES: i32 = 1 << 20;
const MAX_WAIT_MS: i32 = 100;
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::NoCompression),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, partitions, replicas] = words.as_slice() else {
        return Err("usage: rskafka ADDRESS TOPIC PARTITIONS REPLICAS".into());
    };
    let partitions: i32 = partitions.parse()?;
    let client = ClientBuilder::new(address.split(',').map(String::from).collect())
        .build()
        .await?;
    client
        .controller_client()?
        .create_topic(topic, partitions, replicas.parse()?, TIMEOUT_MS)
        .await?;
    for partition in 0..partitions {
        // Metadata of a new topic reaches the brokers one by one.
        let retry = UnknownTopicHandling::Retry;
        let one = client.partition_client(topic, partition, retry).await?;
        println!("{}", used(&one, partition).await?);
    }
    Ok(())
}

async fn used(client: &PartitionClient, partition: i32) -> Result<Value, Error> {
    let mut produced = Vec::new();
    for (name, codec) in CODECS {
        let records = (0..RECORDS_PER_CODEC)
            .map(|n| record(name, partition, n))
            .collect();
        produced.extend(client.produce(records, codec).await?);
    }
    let first = client.get_offset(OffsetAt::Earliest).await?;
    let end = client.get_offset(OffsetAt::Latest).await?;
    let mut next = first;
    let mut records = Vec::new();
    while next < end {
        let (read, _) = client.fetch_records(next, 1..MAX_BYTES, MAX_WAIT_MS).await?;
        for one in read {
            next = one.offset + 1;
            records.push(json!([
                one.offset,
                text(one.record.key),
                text(one.record.value),
                one.record.timestamp.timestamp_millis(),
                one.record.headers.into_iter().map(|(k, v)| (k, text(Some(v)))).collect::<Vec<_>>(),
            ]));
        }
    }
    let offsets = [first, end];
    Ok(json!({"produced": produced, "offsets": offsets, "records": records}))
}

fn record(codec: &str, partition: i32, n: i64) -> Record {
    Record {
        key: Some(partition.to_string().into_bytes()),
        value: Some(format!("{codec} {n} ").repeat(20).into_bytes()),
        headers: BTreeMap::from([("h".to_owned(), b"v".to_vec())]),
        timestamp: Utc.timestamp_millis_opt(1_700_000_000_000 + n).unwrap(),
    }
}

fn text(data: Option<Vec<u8>>) -> Option<String> {
    data.map(|data| String::from_utf8(data).unwrap())
}
