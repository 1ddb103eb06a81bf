SELECT customers.name, SUM(orders.cents), SUM(payments.cents)
FROM customers
JOIN orders ON orders.customer = customers.id
JOIN payments ON payments.customer = customers.id
WHERE orders.cancelled = 0
GROUP BY customers.name
ORDER BY customers.name;
