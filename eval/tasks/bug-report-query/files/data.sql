INSERT INTO customers VALUES (1, 'Berg'), (2, 'Adams'), (3, 'Cole'), (4, 'Adams');
INSERT INTO orders VALUES (1, 1, 500, 0), (2, 1, 700, 0), (3, 2, 100, 0), (4, 2, 900, 1), (5, 4, 250, 0);
INSERT INTO payments VALUES (1, 1, 500), (2, 1, 300), (3, 4, 250);
