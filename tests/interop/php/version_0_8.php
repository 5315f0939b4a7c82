<?php
// For `php -d auto_prepend_file`: php-amqplib then speaks AMQP 0-8.
define('AMQP_PROTOCOL', '8.0');
