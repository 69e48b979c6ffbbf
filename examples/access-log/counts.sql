-- The number of requests in each minute, and how many of them failed.
SELECT
    window(at, '1 minute').start AS minute,
    count(*) AS requests,
    count_if(status >= 500) AS failed
FROM records
GROUP BY window(at, '1 minute')
